"""The trajectory study's two models (arXiv 2604.19440, section 2.6 of its definitions), by statsmodels: within-task least squares with errors clustered by model, and a mixed-effects model of breakthroughs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Effect:
    """One coefficient of standardized variables."""

    name: str
    beta: float
    error: float
    p: float

    def __str__(self) -> str:
        return f"{self.beta:+.3f} (SE {self.error:.3f}, p {'<.001' if self.p < 0.001 else f'{self.p:.3f}'})"


@dataclass(frozen=True)
class Fit:
    """A fitted model.

    Attributes:
        effects: of the predictors.
        r2: share of the variance within tasks that is explained; of a mixed model NaN.
        n: rows.
        groups: clusters.
        likelihood: log; of least squares NaN.
        variances: residual, and of the random intercepts.
    """

    effects: Sequence[Effect]
    r2: float
    n: int
    groups: int
    likelihood: float = float("nan")
    variances: tuple[float, float] = (float("nan"), float("nan"))

    def of(self, name: str) -> Effect:
        """A coefficient by its predictor."""
        return next(effect for effect in self.effects if effect.name == name)


def standardized(frame: Any, names: Sequence[str]) -> Any:
    """The frame with columns at mean 0 and standard deviation 1 (of the sample); a constant column is 0."""
    frame = frame.copy()
    for name in names:
        spread = frame[name].std(ddof=1)
        frame[name] = (frame[name] - frame[name].mean()) / spread if spread > 0 else 0.0
    return frame


def within_task(frame: Any, predictors: Sequence[str], outcome: str = "final") -> Fit:
    """Least squares with task effects; standard errors clustered by model (CR1: G/(G-1) times (N-1)/(N-K)).

    Args:
        frame: one row for each model and task, with columns ``task``, ``model`` and the variables.
        predictors: columns.
        outcome: column.
    """
    import statsmodels.formula.api as smf

    frame = standardized(frame.dropna(subset=[outcome, *predictors]), [outcome, *predictors])
    codes = frame["model"].astype("category").cat.codes
    fit = smf.ols(f"{outcome} ~ {' + '.join(predictors)} + C(task)", frame).fit(
        cov_type="cluster", cov_kwds={"groups": codes, "use_correction": True}
    )
    within = frame[outcome] - frame.groupby("task")[outcome].transform("mean")
    effects = [Effect(name, float(fit.params[name]), float(fit.bse[name]), float(fit.pvalues[name])) for name in predictors]
    return Fit(effects, 1 - float(fit.ssr) / float((within**2).sum()), len(frame), int(codes.nunique()))


ENTROPIES = ("h_fitness", "h_spatial", "mean_novelty", "max_novelty", "generation")


def breakthroughs(frame: Any, lagged: bool) -> Fit:
    """Linear mixed model of a generation's breakthrough, or the next one's, with a random intercept for each model, by maximum likelihood.

    Args:
        frame: one row a generation, with columns ``task``, ``model``, ``seed`` and the variables.
        lagged: whether the outcome is the next generation's.
    """
    import statsmodels.formula.api as smf

    frame = frame.sort_values(["task", "model", "seed", "generation"])
    if lagged:
        frame = frame.assign(breakthrough=frame.groupby(["task", "model", "seed"])["breakthrough"].shift(-1))
    frame = standardized(frame.dropna(subset=["breakthrough", *ENTROPIES]), ["breakthrough", *ENTROPIES])
    formula = f"breakthrough ~ {' + '.join(ENTROPIES)} + mean_novelty:h_spatial"
    with warnings.catch_warnings():
        # an intercept's variance at the edge, zero, is a finding and is printed
        warnings.simplefilter("ignore")
        try:
            fit = smf.mixedlm(formula, frame, groups=frame["model"]).fit(reml=False)
            variances = float(fit.scale), float(fit.cov_re.iloc[0, 0])
        except np.linalg.LinAlgError:
            # the likelihood is highest where the models have one intercept: least squares
            fit = smf.ols(formula, frame).fit()
            variances = float(fit.ssr) / len(frame), 0.0
    names = [*ENTROPIES, "mean_novelty:h_spatial"]
    effects = [Effect(name, float(fit.params[name]), float(fit.bse[name]), float(fit.pvalues[name])) for name in names]
    return Fit(effects, float("nan"), len(frame), int(frame["model"].nunique()), float(fit.llf), variances)
