"""The words that speak for a class, with their weight; data, read by `classify`.

A weight is how much a word says by itself. The first verb says what is to be done, so `classify` counts it double;
"fix", "add", "update" and their like are said of everything, so what they are said of outweighs them.
"""

from __future__ import annotations

from typing import Literal

Class = Literal[
    "fix_bug", "add_feature", "update_docs", "refactor", "optimise", "configure", "investigate", "unknown"
]  # fmt: skip
CLASSES: tuple[Class, ...] = (
    "fix_bug", "add_feature", "update_docs", "refactor", "optimise", "configure", "investigate", "unknown",
)  # fmt: skip

# Verbs, by weight in the middle of a clause.
VERBS: dict[Class, dict[int, str]] = {
    "fix_bug": {2: "fix fixes fixed fixing repair repairs resolve resolves correct corrects patch hotfix", 1: "debug"},
    "add_feature": {
        2: """add adds adding implement implements implementing create creates build introduce support supports extend
        allow allows expose provide"""
    },
    "update_docs": {4: "document documents documenting describe proofread", 2: "explain translate"},
    "refactor": {
        4: """refactor refactors refactoring restructure reorganise reorganize simplify deduplicate modularise
        modularize decouple inline""",
        2: "rename renames extract split merge move cleanup tidy reformat rewrite",
    },
    "optimise": {
        4: "optimise optimises optimize optimizes accelerate",
        2: "speed cache memoise memoize parallelise profile",
    },
    "configure": {
        3: "configure configures reconfigure enable disable chmod symlink",
        2: "set sets bump pin point link switch deploy restart reload",
    },
    "investigate": {
        4: """investigate investigates analyse analyze diagnose explore find audit examine inspect understand research
        check look review compare measure""",
        2: "list show",
    },
}

# Nouns and adjectives, wherever they stand.
NOUNS: dict[Class, dict[int, str]] = {
    "fix_bug": {
        3: """bug bugs crash crashes crashed crashing broken regression regressions fault defect traceback segfault
        deadlock leak leaks leaking race""",
        2: """error errors exception exceptions wrong incorrect incorrectly fail fails failing failed failure hang hangs
        missing invalid corrupt corrupted loses""",
    },
    "add_feature": {
        2: "feature features endpoint endpoints button command subcommand wizard importer exporter",
        1: "new tests test directory file page login option",
    },
    "update_docs": {
        5: """readme docs documentation changelog docstring docstrings tutorial manual typo typos spelling handbook
        faq wiki""",
        3: "guide comment comments wording paragraph docu example examples glossary",
    },
    "refactor": {4: "duplication duplicated legacy spaghetti", 2: "dead unused module modules smaller readable"},
    "optimise": {
        4: "slow slower faster performance latency throughput bottleneck optimisation optimization",
        2: "memory cpu quick quicker efficient n+1 startup",
    },
    "configure": {
        4: "config configuration configurations settings setting",
        3: "executable permissions permission",
        2: """timeout port environment variable variables flag proxy certificate
        hostname nginx systemd cron limit limits retention credentials version""",
    },
    "investigate": {2: "cause reason investigation rootcause analysis"},
}

# Several words with a meaning of their own, taken out before negation is looked for: "does not work" is no "no".
PHRASES: tuple[tuple[str, Class, int], ...] = (
    (r"(?:does|do|did|is|are|was)(?: not|n't) (?:work|start|compile|build|load|respond|save)\w*", "fix_bug", 5),
    (r"no longer (?:works?|starts?|compiles?|builds?|loads?|responds?)", "fix_bug", 5),
    (r"(?:cannot|can't|can not|unable to|fails? to|refuses to)", "fix_bug", 3),
    (r"(?:off by one|null pointer|stack trace|race condition|memory leak|infinite loop)", "fix_bug", 5),
    (r"(?:dead code|unused code|clean up|pull out|break up|single responsibility)", "refactor", 5),
    (r"without chang(?:ing|es to) (?:the )?behaviou?r", "refactor", 4),
    (r"(?:speed up|too slow|less memory|memory usage|takes too long|response time|start-?up time)", "optimise", 6),
    (r"(?:environment variables?|feature flag|config(?:uration)? file|log level)", "configure", 4),
    (r"(?:root cause|find out|figure out|look into|track down)", "investigate", 6),
    (r"(?:release notes|code comments|api reference|how-to)", "update_docs", 6),
)  # fmt: skip

# A question asks to know, not to change.
QUESTIONS = frozenset("why what how where which who when does do is are can could should did".split())
POLITE = frozenset(
    "please kindly just now also then first finally let's let us i we want need would like to you".split()
)
NEGATIONS = frozenset("not don't dont doesn't never without no instead rather nor avoid".split())
CLAUSE_ENDS = frozenset("but only just however instead except then and".split())

# Words that show a text to be English; besides those above.
COMMON = frozenset(
    """a an the this that these those it its in on at of for from to into with without by as and or but not no if when
    while after before so than then there here is are was were be been has have had do does did will would should can
    could may must we you they he she our your their my me us them all any every each some more most other only very
    too up out off over under again once old new first last use uses using used make makes made get gets give gives
    takes take update updates change changes changed improve improves write writes remove removes delete deletes
    replace append user users password code function class method value values data server client service request
    requests response empty file files folder directory line lines text name names number time day page app
    application system because
    touch mkdir about between through during want need like same way where what why how who which""".split()
)
