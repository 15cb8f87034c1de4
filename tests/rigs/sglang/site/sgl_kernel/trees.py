"""Draft trees: B requests, n tokens each. Token 0 is the root, the last token already accepted.

Trees are linked by first child (`next_token`) and next child of the same parent (`next_sibling`), -1 for
none. They hold a few dozen tokens at most, which plain lists walk faster than tensors.
"""

from torch import Tensor

NONE = -1
QLEN_ONLY = 1  # of SGLang's TreeMaskMode: n x n per request, the only one its CPU backend asks for


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,  # [B, m]: for each group of topk candidates, the candidate it descends from
    selected_index: Tensor,  # [B, n - 1], ascending: the candidates that became tokens 1..n-1
    verified_seq_len: Tensor,  # [B]
    tree_mask: Tensor,  # [B * n * n] bool, written: row descends from column, or is it
    positions: Tensor,  # [B * n], written
    retrieve_index: Tensor,  # [B, n], written: each token's index among the B * n
    retrieve_next_token: Tensor,  # [B, n], written; -1 at first
    retrieve_next_sibling: Tensor,  # [B, n], written; -1 at first
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Links the selected candidates into a tree. Candidates 0..topk-1 are children of the root."""
    if tree_mask_mode != QLEN_ONLY:
        raise NotImplementedError(f"tree mask mode {tree_mask_mode}")
    count = draft_token_num
    retrieve_index.flatten().copy_(retrieve_index.new_tensor(range(retrieve_index.numel())))
    masks, depths = tree_mask.view(-1, count, count), positions.view(-1, count)
    rows = zip(parent_list.tolist(), selected_index.tolist(), verified_seq_len.tolist(), strict=True)
    for row, (parent_of_group, selected, length) in enumerate(rows):
        parents = _parents(parent_of_group, selected, topk)
        paths = _paths(parents)
        children, siblings = _links(parents)
        masks[row] = masks.new_tensor([[column in path for column in range(count)] for path in paths])
        depths[row] = depths.new_tensor([length + len(path) - 1 for path in paths])
        retrieve_next_token[row] = retrieve_next_token.new_tensor(children)
        retrieve_next_sibling[row] = retrieve_next_sibling.new_tensor(siblings)


def _parents(parent_of_group: list[int], selected: list[int], topk: int) -> list[int]:
    """The parent token of each token. NONE: the root has none, nor has a candidate whose parent, its equal in
    score, was not selected: it hangs on the root's path but is never visited."""
    token_of = {candidate: token for token, candidate in enumerate(selected, 1)}
    groups = [candidate // topk for candidate in selected]
    return [NONE, *(0 if group == 0 else token_of.get(parent_of_group[group], NONE) for group in groups)]


def _paths(parents: list[int]) -> list[set[int]]:
    """Each token with its ancestors. Parents come before their children."""
    paths = [{0}]
    for token, parent in enumerate(parents[1:], 1):
        paths.append(paths[max(parent, 0)] | {token})
    return paths


def _links(parents: list[int]) -> tuple[list[int], list[int]]:
    """First child and next sibling of each token; siblings in the order of their tokens."""
    children, siblings = [NONE] * len(parents), [NONE] * len(parents)
    for token in range(len(parents) - 1, 0, -1):
        parent = parents[token]
        if parent != NONE:
            siblings[token], children[parent] = children[parent], token
    return children, siblings


def verify_tree_greedy_cpu(
    predicts: Tensor,  # [B * n], written: the target's token after each accepted one
    accept_index: Tensor,  # [B, longest path], written: indices of accepted tokens; -1 at first
    accept_token_num: Tensor,  # [B], written: accepted tokens beyond the root
    candidates: Tensor,  # [B, n], the tokens of the tree
    retrive_index: Tensor,  # [B, n]; SGLang's spelling
    retrive_next_token: Tensor,  # [B, n]
    retrive_next_sibling: Tensor,  # [B, n]
    target_predict: Tensor,  # [B, n], the target's choice after each token
) -> None:
    """Walks from the root: of a token's children, the one that is the target's choice is accepted."""
    columns = (candidates, retrive_index, retrive_next_token, retrive_next_sibling, target_predict)
    for row, lists in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        tokens, index, children, siblings, target = lists
        path = _accepted_path(tokens, children, siblings, target, accept_index.shape[1])
        places = [index[node] for node in path]
        accept_index[row, : len(path)] = accept_index.new_tensor(places)
        accept_token_num[row] = len(path) - 1
        predicts[places] = predicts.new_tensor([target[node] for node in path])


def _accepted_path(
    tokens: list[int], children: list[int], siblings: list[int], target: list[int], longest: int
) -> list[int]:
    path = [0]
    while len(path) < longest:
        child = children[path[-1]]
        while child != NONE and tokens[child] != target[path[-1]]:
            child = siblings[child]
        if child == NONE:
            break
        path.append(child)
    return path
