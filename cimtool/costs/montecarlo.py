"""What the Monte Carlo score would need for the same query and gallery."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MonteCarlo:
    """Sampling with K = `samples` a side, for one query against `gallery` items of width d.

    Each of the 1 + M items takes K d normal numbers, each scaled by a standard deviation; each pair
    K^2 squared distances of d multiplications and K^2 sigmoids.
    """

    samples: int
    gallery: int
    dimension: int

    @property
    def random_normals(self) -> int:
        """Normal random numbers: K d an item."""
        return (1 + self.gallery) * self.samples * self.dimension

    @property
    def multiplications(self) -> int:
        """Multiplications: one a random number, and K^2 d a pair."""
        return self.random_normals + self.gallery * self.samples**2 * self.dimension

    @property
    def sigmoids(self) -> int:
        """Sigmoids: K^2 a pair."""
        return self.gallery * self.samples**2
