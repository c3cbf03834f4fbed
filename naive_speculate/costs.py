"""What drafting and verifying cost, beside a plain step."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs in units of the target's forward over one token.

    Attributes:
        draft: One draft forward.
        verify: A target forward over 1, 2, 3 … tokens; beyond the end it grows as between the last two.
    """

    draft: float
    verify: tuple[float, ...] = (1.0,)

    def verify_cost(self, num_draft_tokens: int) -> float:
        """Cost of verifying that many drafts."""
        last = len(self.verify) - 1
        if num_draft_tokens <= last:
            return self.verify[num_draft_tokens]
        slope = self.verify[last] - self.verify[last - 1] if last else 0.0
        return self.verify[last] + slope * (num_draft_tokens - last)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self) | {"verify": list(self.verify)}
