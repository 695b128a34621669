"""The kinds of projects, one file each. Make is last: it counts where no other kind brings tests of its own."""

from __future__ import annotations

from holdfast.checks.kinds.dotnet import DOTNET
from holdfast.checks.kinds.go import GO
from holdfast.checks.kinds.java import GRADLE, MAVEN
from holdfast.checks.kinds.make import MAKE
from holdfast.checks.kinds.node import NODE
from holdfast.checks.kinds.php import PHP
from holdfast.checks.kinds.python import PYTHON
from holdfast.checks.kinds.ruby import RUBY
from holdfast.checks.kinds.rust import RUST
from holdfast.checks.project import Kind

KINDS: tuple[Kind, ...] = (PYTHON, NODE, RUST, GO, MAVEN, GRADLE, DOTNET, RUBY, PHP, MAKE)
