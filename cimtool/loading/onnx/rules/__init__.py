"""Rules by which ONNX operators become operations; each module registers its own.

The operators' definitions: https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from cimtool.base.named import register_modules

register_modules(__name__, __path__)
