"""The projects of the cases have tests of their own, which are not ours to collect."""

collect_ignore = ["cases"]
