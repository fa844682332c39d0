"""Lists the imports between given Python sources, from their syntax trees.

In: JSON on stdin, {"files": {path: source}, "roots": [folder]}; a module's name is its path below a root. Out: JSON on stdout,
{path: [{"target": path, "line": n, "late": bool, "reason": bool}]}; imports of other modules are left out.
late: the import stands inside a function. reason: a comment `# late: …` stands above it. Imports under TYPE_CHECKING
are listed too.
"""

import ast
import json
import sys


def modules(files, roots):
    """Returns {dotted name: path}; a package's path is that of its __init__.py."""
    names = {}
    for path in files:
        for root in roots:
            if path.startswith(root + "/"):
                name = path[len(root) + 1 : -len(".py")].replace("/", ".")
                names[name[: -len(".__init__")] if name.endswith(".__init__") else name] = path
    return names


def targets(node, package, names):
    """Returns the paths of the given files that an import statement names."""
    if isinstance(node, ast.Import):
        wanted = [alias.name for alias in node.names]
    else:
        base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        stem = ".".join([*base, *([node.module] if node.module else [])])
        wanted = [f"{stem}.{alias.name}" if f"{stem}.{alias.name}" in names else stem for alias in node.names]
    return [names[name] for name in dict.fromkeys(wanted) if name in names]


def imports_of(path, source, names):
    name = next(name for name, file in names.items() if file == path)
    package = name if path.endswith("/__init__.py") else name.rpartition(".")[0]
    lines = source.splitlines()
    found = []

    def visit(node, late):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                above = child.lineno - 2
                while above >= 0 and lines[above].lstrip().startswith(("from ", "import ")):
                    above -= 1
                reason = above >= 0 and lines[above].lstrip().startswith("# late: ")
                for target in targets(child, package, names):
                    found.append({"target": target, "line": child.lineno, "late": late, "reason": reason})
            visit(child, late or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))

    visit(ast.parse(source, path), False)
    return found


given = json.load(sys.stdin)
known = modules(given["files"], given["roots"])
json.dump({path: imports_of(path, source, known) for path, source in given["files"].items()}, sys.stdout)
