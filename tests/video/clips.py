"""Small rendered clips, and a network that measures shifts."""

from fractions import Fraction

import cv2
import numpy as np
import torch

from gocor.models.network import MatchingNetwork

HEIGHT, WIDTH = 64, 96


class ShiftNet(MatchingNetwork):
    """Flow of a shift of the whole image, measured by phase correlation to a whole pixel."""

    name = "shift"

    def __init__(self):
        super().__init__()
        self.zero = torch.nn.Parameter(torch.zeros(()))

    def round_size(self, height, width):
        return height, width

    def prepare(self, reference, query, size):
        return reference, query

    def level_units(self, height, width):
        return [(height, width)]

    def levels(self, *inputs, iters_local=None, iters_global=None, count=None):
        edges = torch.outer(*(torch.hann_window(side) for side in inputs[0].shape[2:]))
        first, second = (torch.fft.fft2(edges * (x.mean(1) - x.mean())) for x in inputs)
        cross = second * first.conj()
        score = torch.fft.ifft2(cross / cross.abs().clamp(min=1e-6)).real
        height, width = score.shape[1:]
        y, x = divmod(int(score[0].argmax()), width)
        y, x = (y + height // 2) % height - height // 2, (x + width // 2) % width - width // 2
        return [torch.tensor([x, y], dtype=torch.float32).view(1, 2, 1, 1).expand(1, 2, height, width) + self.zero]


def texture(height=200, width=300, seed=0):
    noise = np.random.default_rng(seed).standard_normal((height, width, 3)).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), 1.5)
    return np.rint(127 + 50 * smooth / smooth.std()).clip(0, 255).astype(np.uint8)


def shifted(shifts, size=(HEIGHT, WIDTH), seed=0):
    """Frames whose content has moved by shifts (x, y), in whole pixels, from its place in a frame without shift."""
    scene = texture(seed=seed)
    corner = 60, 100
    return [scene[corner[0] - y : corner[0] - y + size[0], corner[1] - x : corner[1] - x + size[1]] for x, y in shifts]


def steady_shift(count=8, step=(3, -1), size=(HEIGHT, WIDTH)):
    return shifted([(step[0] * i, step[1] * i) for i in range(count)], size)


def write_clip(path, frames, *, rate=12, ticks=None, rotation=None, pix_fmt="yuv420p", colorspace=None, audio=False):
    """Encode frames almost without loss; `ticks` are their times in 1/600 s."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options={"crf": "1"})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = pix_fmt
        if ticks is not None:
            stream.codec_context.time_base = stream.time_base = Fraction(1, 600)
        if rotation is not None:
            stream.set_display_rotation(rotation)
        if colorspace is not None:
            stream.codec_context.colorspace = colorspace
        sound = container.add_stream("aac", rate=8000) if audio else None
        for index, picture in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame = frame.reformat(format=pix_fmt, dst_colorspace=colorspace)
            if ticks is not None:
                frame.pts, frame.time_base = ticks[index], stream.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if sound is not None:
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 2048), np.float32), format="fltp", layout="mono")
            silence.sample_rate = 8000
            container.mux([*sound.encode(silence), *sound.encode(None)])


def read_clip(path):
    """Pictures, times in seconds and the stream's facts."""
    import av

    from gocor.video.file_source import to_picture

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = list(container.decode(stream))
        facts = {"rate": stream.average_rate, "codec": stream.codec_context.name, "pix_fmt": stream.pix_fmt}
        return [to_picture(frame) for frame in frames], [frame.pts * frame.time_base for frame in frames], facts
