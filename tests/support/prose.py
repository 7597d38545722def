# SPDX-License-Identifier: MIT
"""English without end, the same each time: what a long context is filled with.

Sentences of a fixed grammar and word list, drawn with a fixed seed. They are dull, but they are words in an order
that occurs: a tokenizer splits them as it splits any text, and a model goes on in sentences. No two neighbours are
alike, so that attention has something to tell apart. ASCII, no line breaks, no backslash: every program takes it as
it is."""

import random

SEED = 19
WHO = ("the keeper", "the old captain", "a young carpenter", "the clerk", "my neighbour", "the widow", "a stranger",
       "the doctor", "the smith", "her brother", "the pilot", "a child from the village", "the cook", "the teacher")
DID = ("carried", "sold", "mended", "found", "counted", "hid", "painted", "weighed", "lost", "described", "borrowed",
       "measured", "watched over", "forgot")
WHAT = ("a lamp", "the blue boat", "three letters", "an iron chain", "the map of the coast", "a basket of apples",
        "the broken clock", "two barrels of oil", "a wooden bird", "the last of the bread", "a heavy book",
        "the key to the tower", "some rope", "a silver coin")
WHERE = ("near the harbour", "behind the church", "on the northern road", "in the small room above the shop",
         "under the bridge", "at the edge of the forest", "beside the well", "in the empty hall", "along the river")
WHEN = ("in the morning", "before the storm", "on the second day", "late in autumn", "while the others slept",
        "as the tide went out", "after the long winter", "that same evening", "without a word")
JOIN = ("and", "but", "because", "so", "although", "until", "while")


def clause(draw):
    return f"{draw.choice(WHO)} {draw.choice(DID)} {draw.choice(WHAT)} {draw.choice((draw.choice(WHERE), draw.choice(WHEN)))}"


def words(n):
    """The first n words, ending where they end."""
    draw = random.Random(SEED)
    found = []
    while len(found) < n:
        sentence = clause(draw)
        if draw.random() < 0.6:
            sentence += f", {draw.choice(JOIN)} {clause(draw)}"
        found += (sentence[0].upper() + sentence[1:] + ".").split()
    return " ".join(found[:n])
