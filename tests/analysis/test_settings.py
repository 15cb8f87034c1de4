from analysis.settings import changed, describe


def test_names_what_differs_with_both_values() -> None:
    a = {"n_max": 16, "p_min": 0.75, "ctx": 4096}
    b = {"n_max": 3, "p_min": 0.0, "ctx": 4096}
    assert changed(a, b) == {"n_max": (16, 3), "p_min": (0.75, 0.0)}
    assert describe(changed(a, b)) == "n_max 16 -> 3, p_min 0.75 -> 0.0"


def test_a_setting_on_one_side_only_is_a_change() -> None:
    assert changed({"a": 1}, {"b": 2}) == {"a": (1, None), "b": (None, 2)}


def test_keys_that_may_differ_are_ignored() -> None:
    assert changed({"method": "none", "slots": 4}, {"method": "mtp", "slots": 2}, ignoring=["method"]) == {
        "slots": (4, 2)
    }


def test_numbers_compare_by_value_but_true_is_not_one() -> None:
    assert changed({"a": 3, "b": 1}, {"a": 3.0, "b": True}) == {"b": (1, True)}
