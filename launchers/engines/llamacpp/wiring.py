"""What llama.cpp makes of a draft model beside the model."""

from collections.abc import Sequence

from launchers.engines.wiring import Drafting
from results.wiring import Cause, Finding, Fix, Reading, Severity


class LlamaCppWiring:
    def reading(self, drafting: Drafting) -> Reading | None:
        """Unknown: its EAGLE-3 drafts are files of its own kind, converted with their wiring."""
        return None

    def findings(self, drafting: Drafting) -> Sequence[Finding]:
        if drafting.attached:
            return ()
        return (
            Finding(
                Cause.NOT_ATTACHED,
                Severity.FATAL,
                f"--model-draft {drafting.head.folder.name} without --spec-type",
                "recent builds load the draft and never use it: the type is none unless set "
                "(llama.cpp issue #25345)",
                Fix(
                    "add --spec-type draft-simple (draft-eagle3 or draft-mtp for a draft of that kind)",
                    method="draft-simple",
                ),
            ),
        )

    def fix_for(self, drafting: Drafting, boundaries: Sequence[int]) -> Fix | None:
        return None
