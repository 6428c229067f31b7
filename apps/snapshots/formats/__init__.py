"""The forms in which a frozen dataset is given to other programs, computed from its own files."""

from apps.snapshots.formats.shapes import (
    FROZEN_SHAPE,
    SHAPES,
    Shape,
    SourceFiles,
    shape_get,
    shapes_for,
    with_own,
)

__all__ = ["FROZEN_SHAPE", "SHAPES", "Shape", "SourceFiles", "shape_get", "shapes_for", "with_own"]
