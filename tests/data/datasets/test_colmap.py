"""COLMAP's text files."""

import cv2
import numpy as np
import pytest

from gocor.data.datasets.colmap import correspondences, quaternion, read_intrinsics, read_views, relative

HEADER = "# Image list with two lines of data per image:\n#   IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME\n"


def written(tmp_path, text, name="images.txt"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_images_without_keypoints_and_keypoints_without_a_point(tmp_path):
    text = (
        HEADER
        + "1 1 0 0 0 0 0 0 3 a b.png\n5.5 6.5 12 7 8 -1 1.5 2.5 4\n2 1 0 0 0 0 0 0 3 c.png\n\n3 1 0 0 0 1 2 3 3 d.png\n"
    )
    first, second, third = read_views(written(tmp_path, text))
    assert (first.name, second.name, third.name) == ("a b.png", "c.png", "d.png")
    assert first.ids.tolist() == [4, 12]
    assert first.points.tolist() == [[1, 2], [5, 6]]  # COLMAP's first pixel has its centre at ½, ours at 0
    assert len(second.ids) == len(third.ids) == 0
    assert third.translation.tolist() == [1, 2, 3]
    assert correspondences(first, second).shape == (0, 4)


@pytest.mark.parametrize("text", ["1 1 0 0 0\n\n", "1 1 0 0 0 0 0 0 3 a.png\n1 2\n", "a b c d e f g h i j\n\n"])
def test_other_files_are_errors(tmp_path, text):
    with pytest.raises(ValueError, match=r"images\.txt is not COLMAP's images\.txt"):
        read_views(written(tmp_path, text))


def test_rotations_against_opencv():
    axis = np.array([0.3, -0.5, 0.7])
    angle = np.linalg.norm(axis)
    values = np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * axis / angle])
    assert np.allclose(quaternion(3 * values), cv2.Rodrigues(axis)[0])


def test_relative_pose_takes_points_from_one_camera_to_the_other(tmp_path):
    text = HEADER + "1 0.9 0.1 -0.2 0.3 1 2 3 0 a.png\n\n2 0.8 -0.3 0.1 0.2 -1 0.5 2 1 b.png\n\n"
    first, second = read_views(written(tmp_path, text))
    cameras = read_intrinsics(
        written(tmp_path, "0 PINHOLE 9 9 5 6 4.5 3.5\n1 SIMPLE_PINHOLE 9 9 7 2 3\n2 FOV 9 9 1\n", "c")
    )
    assert sorted(cameras) == [0, 1]
    assert cameras[0].tolist() == [[5, 0, 4], [0, 6, 3], [0, 0, 1]]
    assert cameras[1].tolist() == [[7, 0, 1.5], [0, 7, 2.5], [0, 0, 1]]
    pose, point = relative(first, second, cameras), np.array([0.4, -0.2, 5.0])
    seen = [view.rotation @ point + view.translation for view in (first, second)]
    assert np.allclose(pose.rotation @ seen[0] + pose.translation, seen[1])
    assert relative(first, second, {0: cameras[0]}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 PINHOLE 9 9 x 6 4 3\n", "cannot read the camera '1 PINHOLE"),
        ("1\n", "cannot read the camera '1'"),
        ("1 PINHOLE 9 9 5\n", "cannot read the camera"),
        ("1 PINHOLE 9 9 0 6 4 3\n", "camera 1 must be finite, not 0"),
        ("1 PINHOLE 9 9 nan 6 4 3\n", "camera 1 must be finite, not 0"),
    ],
)
def test_other_cameras_are_errors(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_intrinsics(written(tmp_path, text, "cameras.txt"))


@pytest.mark.parametrize("row", ["1 0 0 0 0 0 0 0 3 a.png\n\n", "1 1 0 0 0 0 0 0 3 a.png\n1 1 inf\n"])
def test_values_that_are_no_pose_or_point(tmp_path, row):
    with pytest.raises(ValueError, match=r"images\.txt"):
        read_views(written(tmp_path, row))


def test_text_files_that_colmap_writes(tmp_path):
    """Points project where the views say they are seen, and lie on the epipolar lines of the relative pose."""
    pycolmap = pytest.importorskip("pycolmap")
    options = pycolmap.SyntheticDatasetOptions()
    options.camera_model_id, options.camera_params = pycolmap.CameraModelId.PINHOLE, [1280, 1100, 512, 384]
    model = pycolmap.synthesize_dataset(options)
    model.write_text(str(tmp_path))
    views = sorted(read_views(tmp_path / "images.txt"), key=lambda view: view.name)
    intrinsics = read_intrinsics(tmp_path / "cameras.txt")
    assert [view.name for view in views] == sorted(image.name for image in model.images.values())
    for view in views:
        points = np.array([model.points3D[number].xyz for number in view.ids])
        seen = (points @ view.rotation.T + view.translation) @ intrinsics[view.camera].T
        np.testing.assert_allclose(seen[:, :2] / seen[:, 2:], view.points, atol=1e-6)
        assert len(view.ids) > 10
    pose = relative(views[0], views[1], intrinsics)
    matches = correspondences(views[0], views[1])
    x, y, z = pose.translation
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ pose.rotation
    start, end = (np.column_stack([part, np.ones(len(matches))]) for part in (matches[:, :2], matches[:, 2:]))
    rays = start @ np.linalg.inv(pose.reference).T, end @ np.linalg.inv(pose.query).T
    np.testing.assert_allclose((rays[1] @ essential * rays[0]).sum(1), 0, atol=1e-9)
