"""Policies as files: how one acts is written down as a graph of array operations, see `program`."""

from rlframe.serving.export.exporting import FORMATS, export_policy

__all__ = ["FORMATS", "export_policy"]
