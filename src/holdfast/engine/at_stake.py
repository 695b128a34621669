"""How many files a change could remove.

What a repository ignores is made again by its tools and does not land: beside a large build folder the sources would be
a small share. It counts only as far as the change itself removes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.model.path import TOOL_DIRECTORIES, ancestors_of
from holdfast.workspace.gitrules import Rulebook
from holdfast.workspace.ignored import ignored_paths
from holdfast.workspace.site import Site
from holdfast.workspace.tree import snapshot


def files_at_stake(site: Site, removed: Sequence[str]) -> int:
    """Of the tree as it is; all files where git cannot say which of them are ignored."""
    tree, rules, gone = snapshot(site.path, site.state.path), Rulebook(site.workspace), set[str]()

    def ignored(paths: list[str]) -> frozenset[str]:
        found = ignored_paths(site, paths, rules)
        gone.update(found)
        return found

    try:
        staying = tree.files_outside(TOOL_DIRECTORIES, ignored)
    except (HoldfastError, OSError):
        return tree.files_outside(TOOL_DIRECTORIES)
    return staying + sum(not gone.isdisjoint([path, *ancestors_of(path)]) for path in removed)
