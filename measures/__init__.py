"""Pure statistics that both sides use: numpy and scipy, neither Django nor torch.

Every public function states its formula, its source, what it assumes and what it does when that
fails. A statistic that is undefined comes back as a typed result that says why
(`measures.estimate`), never as a silent NaN; input that makes no sense (a negative count, a share
over 1) is a ValueError that names it.
"""
