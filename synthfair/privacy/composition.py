"""What mechanisms cost together: Gaussian ones, and sums over samples, in whatever order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from synthfair.privacy.accounting import delta_of, epsilon_of
from synthfair.privacy.sampled import SampledSums, fresh_accountant, quiet

if TYPE_CHECKING:
    from dp_accounting import PrivacyAccountant


@dataclass(frozen=True)
class Composition:
    """Mechanisms of one unit and one neighbouring relation.

    Attributes:
        mu: of Gaussian differential privacy, all mechanisms without sampling together.
        sampled: the others, each with its noise in units of its sensitivity; all of one relation.
    """

    mu: float = 0.0
    sampled: tuple[tuple[SampledSums, float], ...] = ()

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is known to hold at this delta; exact where nothing is sampled."""
        if not self.sampled:
            return epsilon_of(self.mu, delta)
        with quiet():
            return float(self._accountant().get_epsilon(delta))

    def delta(self, epsilon: float) -> float:
        """The least delta that is known to hold at this epsilon."""
        if not self.sampled:
            return delta_of(self.mu, epsilon)
        with quiet():
            return float(self._accountant().get_delta(epsilon))

    def _accountant(self) -> PrivacyAccountant:
        import dp_accounting as dp

        accountant = fresh_accountant(self.sampled[0][0].sampling)
        for sums, noise in self.sampled:
            accountant.compose(sums.event(noise))
        if self.mu > 0:
            accountant.compose(dp.GaussianDpEvent(1.0 / self.mu))
        return accountant
