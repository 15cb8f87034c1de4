"""Optuna's study of a search: a journal in the run folder, or in the database that several drivers share.

It is search state only. Of a shared one, what dead drivers left open is told as failed.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from results.environment import short_hash
from results.sharing import StudyPlace
from sweeps.space import Space

if TYPE_CHECKING:
    import optuna

VALUE = "log(speed-up over the baseline): 0 = as fast, 0.0953 = 1.10x"
DRIVER, NUMBER, SPACE = "driver", "trial", "space"  # user attributes


def begin(place: Path | StudyPlace, space: Space, seed: int) -> "optuna.Study":
    """A new one; or the shared one, with whatever drivers have told it. Whoever shares it waits meanwhile."""
    import optuna

    optuna.logging.set_verbosity(logging.ERROR)
    if isinstance(place, Path):
        return _created(_journal(place), place.parent.name, seed)
    storage, kind = _storage(place), short_hash(sorted(space.points))
    study = _created(storage, place.name, seed)
    if study.user_attrs.get(SPACE, kind) != kind:  # Optuna holds a study to its first choices
        optuna.delete_study(study_name=place.name, storage=storage)
        study = _created(storage, place.name, seed)
    study.set_user_attr(SPACE, kind)
    return study


def told_before(study: "optuna.Study") -> set[int]:
    """Numbers of the Trials that are in the study already."""
    return {t.user_attrs[NUMBER] for t in study.get_trials(deepcopy=False) if NUMBER in t.user_attrs}


def fail_what_is_left_open(study: "optuna.Study", place: StudyPlace) -> None:
    """By drivers that are dead. Nobody else asks meanwhile."""
    from optuna.trial import TrialState

    living = place.living()
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING)):
        if trial.state is TrialState.WAITING or trial.user_attrs.get(DRIVER) not in living:
            study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)


def _created(storage: "optuna.storages.BaseStorage", name: str, seed: int) -> "optuna.Study":
    import optuna

    study = optuna.create_study(
        study_name=name,
        direction="maximize",
        storage=storage,
        sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True),
        pruner=optuna.pruners.NopPruner(),
        load_if_exists=True,
    )
    study.set_user_attr("value", VALUE)
    return study


def _journal(path: Path) -> "optuna.storages.BaseStorage":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    for stale in path.parent.glob(path.name + "*"):
        stale.unlink()
    return JournalStorage(JournalFileBackend(str(path)))


def _storage(place: StudyPlace) -> "optuna.storages.BaseStorage":
    from optuna.storages import RDBStorage, get_storage

    rdb = RDBStorage(place.address, engine_kwargs={"pool_pre_ping": True, "hide_parameters": True})
    return cast("optuna.storages.BaseStorage", _Patient(get_storage(rdb), place.patiently))


class _Patient:
    """A storage whose every method is done again while its server is away."""

    def __init__(self, storage: Any, patiently: Callable[..., Any]) -> None:
        self._storage, self._patiently = storage, patiently

    def __getattr__(self, name: str) -> Any:
        from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError

        method, tries = getattr(self._storage, name), 0

        def once(*args: Any, **named: Any) -> Any:
            nonlocal tries
            tries += 1
            try:
                return method(*args, **named)
            except UpdateFinishedTrialError:
                if tries == 1:  # else it was done, and only its answer was lost
                    raise
            return None

        def patiently(*args: Any, **named: Any) -> Any:
            return self._patiently(lambda: once(*args, **named), StorageInternalError)

        return patiently
