from __future__ import annotations

from settled_towers import branch_content, branches, poly_file, polynomial, trunks

__all__ = ["branch_content", "branches", "poly_file", "polynomial", "trunks"]
