"""Matchers that know the answer."""

import numpy as np


def true_flow(pair, rounding="none"):
    """A dense flow that agrees with the ground truth of a pair wherever it is looked up."""
    if pair.homography is not None:
        start, end, _ = pair.truth()
        flow = np.zeros((*pair.valid.shape, 2))
        column, row = start.astype(int).T
        flow[row, column] = end - start
        return flow
    if pair.flow is not None:
        return pair.flow
    start = np.rint(pair.points[:, :2]) if rounding == "move" else pair.points[:, :2]
    shifts = pair.points[:, 2:] - start
    y, x = np.mgrid[: pair.reference.shape[0], : pair.reference.shape[1]]
    distance = (x[..., None] - pair.points[:, 0]) ** 2 + (y[..., None] - pair.points[:, 1]) ** 2
    return shifts[distance.argmin(-1)]


class Oracle:
    """Recognises the pairs of a data set by their images; `factor` times the truth is what it answers."""

    def __init__(self, dataset, protocol, factor=1.0):
        self.answers, self.calls = {}, 0
        for pair in dataset:
            prepared = protocol.prepare(pair)
            self.answers[prepared.reference.tobytes() + prepared.query.tobytes()] = factor * true_flow(
                prepared, protocol.rounding
            )

    def __call__(self, reference, query):
        self.calls += 1
        return self.answers[reference.tobytes() + query.tobytes()]
