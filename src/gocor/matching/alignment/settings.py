"""Settings of the alignment."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AlignmentSettings:
    """Settings of the search for a homography between the images of a pair.

    Lengths are fractions of the coarse image's side, unless said otherwise. *Support* is the measure of an alignment:
    the mean over cells of the coarse grid of forward–backward consistency, times the margin by which the matched
    feature is more similar than the reference's own repeated structure.
    """

    rounds: int = 4  # Rounds of fitting a homography and matching again, from one start.
    close_support: float = 0.3  # Views with this support or more are refined only if their homography moves the image.
    min_round_gain: float = 0.02  # Their support must grow by more than this fraction in a round to get another one.
    shifts: tuple[tuple[float, float], ...] = ((-0.75, 0), (0.75, 0), (0, -0.75), (0, 0.75))  # Starts: shifts in x, y.
    turns: tuple[float, ...] = (45, -45, 90, -90, 135, -135, 180)  # Starts: rotations in degrees.
    tilts: tuple[float, ...] = (1 / 4, 4)  # Starts: factors by which the query is stretched in one direction.
    tilt_directions: tuple[float, ...] = (0, 45, 90, 135)  # Directions of that stretch, in degrees.
    overview_scale: float = 0.35  # Starts: size of a part of the query, or of the reference, that is enlarged.
    overview_offset: float = 0.3  # Distance of the parts' centres from the image's centre; one part is at the centre.
    distant_starts: int = 3  # Number of tilted or enlarged starts that are refined.
    support_without_shifts: float = 0.15  # Below this support, shifted queries are tried.
    support_without_turns: float = 0.05  # Below this support, rotated, tilted and zoomed queries are tried.
    min_support: float = 0.01  # Support that an alignment needs.
    min_gain: float = 1.05  # Factor by which its support must exceed that of the unaligned images.
    min_corner_motion: float = 0.08  # Images whose corners all move by less are not aligned.
    rival_support: float = 0.3  # Fraction of the highest support that makes another alignment a rival.
    rival_distance: float = 1 / 16  # Median distance between the matches of two rivals.
    rival_side: int = 512  # Side in pixels of the images on which rivals are compared.
    rival_consistency: float = 2.0  # Forward–backward error, in pixels of these images, below which a match counts.
    lookalike_correlation: float = 0.5  # Correlation that patches of similar but different structures reach.
    consistency: tuple[float, ...] = (1 / 64, 3 / 64)  # Forward–backward errors of points to fit to, strictest first.
    min_points: int = 24  # Points that a homography is fitted to; half as many must be inliers.
    inlier_distance: float = 1 / 64  # Largest error of an inlier.
    scale_range: tuple[float, float] = (1 / 6, 6)  # Smallest and largest local scale of a homography.
    ambiguity_radius: int = 2  # Cells around a feature that do not count for its ambiguity: they are always similar.
    ambiguity_rank: int = 12  # Rank of the non-local similarity that is the ambiguity baseline of a feature.
    closeup_scale: float = 1.4  # Above this scale, the warped query has twice the reference's resolution.
    max_outside: float = 0.5  # Distance of a match from the query, in fractions of the query's sides.
    looks: int = 3  # Further looks at a pair, see `look_again`, at most.
    look_updates: int = 8  # Updates of a recurrent network in a further look, at most.
    unsure_confidence: float = 0.5  # Confidence, averaged over a window, below which a pixel is unexplained.
    min_unexplained_share: float = 0.2  # Share of unexplained pixels that a further look needs.
    min_explained_more: float = 0.02  # A look that explains a smaller share of the pixels anew is the last.
    part_starts: int = 2  # Views from which the homography of an unexplained part is searched.
    part_rounds: int = 2  # Rounds of that search, from each view.
    part_shifts: tuple[tuple[float, float], ...] = ((-0.5, 0), (0.5, 0), (0, -0.5), (0, 0.5))  # Starts in that search.
    min_part_points: int = 12  # Points that such a homography is fitted to.
    min_part_support: float = 0.7  # Smallest support in the part, as a fraction of that of the homographies used.
    part_distance: float = 1 / 32  # Median distance of its matches from those of the homographies used.
    views_per_batch: int = 32  # Warped queries that pass through the coarse levels at once, on a GPU.
    views_per_batch_cpu: int = 2  # The same on a CPU, whose caches hold few activations.


DEFAULT_ALIGNMENT = AlignmentSettings()
