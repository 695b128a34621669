"""module_creation_python_module, module_creation_python_package: Python files with a test that passes."""

from __future__ import annotations

from holdfast.planning.patterns import schemas
from holdfast.planning.patterns.pattern import Draft, Facts, Inputs, Pattern, Produced
from holdfast.planning.patterns.python_source import (
    RECORDS,
    docstring,
    joined,
    listed,
    module_source,
    module_test,
    package_schema,
    records_in,
    refuse_keywords,
    refuse_repeats,
    require_package,
    root_of,
    run_test,
    test_path,
    test_source,
)
from holdfast.planning.patterns.schemas import tables_of, text_of


def _module(inputs: Inputs, facts: Facts) -> Draft:
    name, summary, root = text_of(inputs, "name"), text_of(inputs, "summary"), root_of(inputs, facts)
    refuse_keywords("name", name)
    require_package(root, name, facts)
    records = records_in(inputs)
    test = test_path(text_of(inputs, "tests", "tests"), name)
    files = (
        Produced(joined(root, name.replace(".", "/") + ".py"), module_source(summary, records)),
        Produced(test, module_test(name, summary, records)),
    )
    return Draft(f"Create the Python module {name}", files, (run_test(root, test),))


def _package(inputs: Inputs, facts: Facts) -> Draft:
    name, summary, root = text_of(inputs, "name"), text_of(inputs, "summary"), root_of(inputs, facts)
    refuse_keywords("name", name)
    require_package(root, name, facts)
    modules = tables_of(inputs, "modules")
    names = [text_of(module, "name") for module in modules]
    refuse_repeats("modules", names)
    for each in names:
        refuse_keywords("modules", each)
    home = joined(root, name.replace(".", "/"))
    test = test_path(text_of(inputs, "tests", "tests"), name)
    exported = f"\n__all__ = {listed(sorted(names))}\n" if names else "\n__all__: list[str] = []\n"
    files = [Produced(f"{home}/__init__.py", docstring(summary) + exported)]
    files += [Produced(f"{home}/py.typed", "")] if inputs.get("typed", True) and "." not in name else []
    files += [
        Produced(f"{home}/{text_of(module, 'name')}.py", module_source(text_of(module, "summary"), ()))
        for module in modules
    ]
    more = (["importlib"], [_EVERY_MODULE]) if names else ([], [])
    files.append(Produced(test, test_source(name, summary, names, *more)))
    return Draft(f"Create the Python package {name}", tuple(files), (run_test(root, test),))


_EVERY_MODULE = """
    def test_every_module_can_be_imported(self) -> None:
        for name in module.__all__:
            found = importlib.import_module(f"{module.__name__}.{name}")
            self.assertTrue(found.__doc__)
"""


MODULE = Pattern(
    "module_creation_python_module",
    "A Python module",
    "A module with a docstring, optional frozen records, and a test that passes. Its package must be there.",
    package_schema(
        ("name", "summary"),
        name=schemas.dotted("a Python module such as billing.invoices, in lower case"),
        summary=schemas.text("one line about the module"),
        records=RECORDS,
    ),
    {
        "name": "invoices",
        "summary": "Invoices and their lines.",
        "records": [
            {
                "name": "InvoiceLine",
                "summary": "One line of an invoice.",
                "fields": [{"name": "what", "type": "text"}, {"name": "cents", "type": "integer"}],
            }
        ],
    },
    _module,
)
PACKAGE = Pattern(
    "module_creation_python_package",
    "A Python package",
    "A package with a docstring, optional modules, a py.typed marker, and a test that passes.",
    package_schema(
        ("name", "summary"),
        name=schemas.dotted("a Python package such as billing, in lower case"),
        summary=schemas.text("one line about the package"),
        typed={"type": "boolean", "description": "whether a py.typed marker is wanted", "default": True},
        modules=schemas.items(
            "modules to begin with",
            schemas.table(
                ("name", "summary"),
                name=schemas.name("a Python name in lower case"),
                summary=schemas.text("one line about the module"),
            ),
        ),
    ),
    {
        "name": "billing",
        "summary": "What customers owe.",
        "modules": [{"name": "invoices", "summary": "Invoices and their lines."}],
        "root": "src",
    },
    _package,
)
