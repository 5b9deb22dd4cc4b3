"""Shares that were counted: Clopper and Pearson's interval, McNemar's test of two on the same."""

from __future__ import annotations

from cimtool.reference.bootstrap import LEVEL, Change


def counted_share(count: int, of: int) -> Change:
    """The share `count / of` and its interval at LEVEL, which covers at least that for any share.

    Clopper and Pearson 1934: the ends are quantiles of beta distributions.
    """
    from scipy.special import betaincinv  # slow to load, and every command imports this

    edge = (1 - LEVEL) / 2
    low = float(betaincinv(count, of - count + 1, edge)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - edge)) if count < of else 1.0
    return Change(count / of, low, high)


def chance_of_split(first: int, second: int) -> float:
    """The chance that so many discordant pairs split so unevenly or more, were both as likely.

    The exact conditional test of two shares on the same items, of which `first` have only the one
    and `second` only the other property: McNemar, Psychometrika 12, 1947, with the binomial
    distribution in place of the normal. It keeps its level for every number of items; Fagerland,
    Lydersen and Laake, BMC Med. Res. Methodol. 13:91, 2013, compare it with less cautious ones.
    """
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(first, second), first + second, 0.5)))
