"""ascii_tree_formatting: draw an indented outline as a tree of ASCII lines."""

import random
from typing import Any

from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_range, row
from tasks.collect.makers._words import NOUNS

Tree = tuple[str, list["Tree"]]


def _grow(rng: random.Random, nodes: int, depth: int) -> Tree:
    """A random tree with exactly this many nodes, no deeper than `depth` below the root."""
    labels = rng.sample(NOUNS, nodes)
    root: Tree = (labels[0], [])
    open_nodes = [(root, 0)]
    for label in labels[1:]:
        parent, level = rng.choice(open_nodes)
        child: Tree = (label, [])
        parent[1].append(child)
        if level + 1 < depth:
            open_nodes.append((child, level + 1))
    return root


def _outline(tree: Tree, level: int = 0) -> list[str]:
    lines = ["  " * level + tree[0]]
    for child in tree[1]:
        lines += _outline(child, level + 1)
    return lines


def _draw(children: list[Tree], indent: str = " ") -> list[str]:
    lines = []
    for place, (label, below) in enumerate(children, 1):
        last = place == len(children)
        lines.append(f"{indent}{'`' if last else '|'}-- {label}")
        lines += _draw(below, indent + ("    " if last else "|   "))
    return lines


def make(
    seed: int, index: int, *, min_nodes: int = 5, max_nodes: int = 9, depth: int = 3
) -> dict[str, Any]:
    """One outline with its drawing."""
    check_range("ascii_tree_formatting", "min_nodes", min_nodes, 2, 60)
    check_range("ascii_tree_formatting", "max_nodes", max_nodes, min_nodes, 60)
    check_range("ascii_tree_formatting", "depth", depth, 1, 12)
    rng = stream("ascii_tree_formatting", seed, index)
    nodes = rng.randint(min_nodes, max_nodes)
    tree = _grow(rng, nodes, depth)
    truth = "\n".join([tree[0], *_draw(tree[1])])
    example = "top\n |-- a\n `-- b" if depth == 1 else "top\n |-- a\n |   `-- b\n `-- c"
    prompt = (
        "Draw this outline as a tree.\n"
        + "\n".join(_outline(tree))
        + f"\nUse this style:\n{example}\n"
        "Give only the tree between <ascii_formatted> and </ascii_formatted>."
    )
    gold = f"<ascii_formatted>\n{truth}\n</ascii_formatted>"
    return row(
        "ascii_tree_formatting", seed, index, prompt, {"ground_truth": truth}, gold, nodes=nodes
    )
