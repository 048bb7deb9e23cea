"""The words of arithmetic: settings, and sentence templates for each change of a quantity.

The wording is our own. A template may hold `{who}` (the name or the pronoun), `{he}`, `{him}`,
`{his}`, `{himself}`, `{friend}`, `{many}` (the things), `{boxes}`, and one number: `{things}` (5
apples), `{more}` (5 more apples), `{times}` (twice, 3 times), `{friends}` (3 friends) or `{parts}`
(3). A template that starts with neither a name nor a pronoun starts in lower case, since an opening
may precede it. Numbers may be 1, so no word next to `{things}` or `{more}` is a plural.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Person:
    """A name with its pronouns."""

    name: str
    he: str
    him: str
    his: str
    himself: str


WOMEN = tuple(
    Person(name, "she", "her", "her", "herself")
    for name in (
        "Ada",
        "Bea",
        "Cora",
        "Dina",
        "Elsa",
        "Fay",
        "Gwen",
        "Iris",
        "Lucy",
        "Mia",
        "Nell",
        "Ruth",
    )
)
MEN = tuple(
    Person(name, "he", "him", "his", "himself")
    for name in (
        "Adam",
        "Boris",
        "Carlos",
        "Erik",
        "Felix",
        "Hugo",
        "Ivan",
        "Jonas",
        "Leo",
        "Milo",
        "Otto",
        "Tom",
    )
)

OPENINGS = ("", "", "Then ", "Next, ", "After that, ", "Later, ")

# Templates that fit any things that one can hold.
COMMON: Mapping[str, tuple[str, ...]] = {
    "add": ("{friend} gives {him} {more}.", "{who} gets {more} from {friend}."),
    "subtract": (
        "{who} gives {things} to {friend}.",
        "{who} lets {friend} have {things}.",
    ),
    "times": (
        "{who} keeps collecting until {he} has {times} as many {many} as before.",
        "a busy week leaves {him} with {times} as many {many} as before.",
    ),
    "divide": (
        "{who} packs all {his} {many} evenly into {parts} {boxes} and keeps just one of them.",
        "{who} sorts all {his} {many} into {parts} equal piles and keeps only one pile.",
        "{who} splits all {his} {many} into {parts} equal parts and gives away all but one part.",
    ),
    "share": (
        "{who} shares all {his} {many} equally with {friends}, so that everyone has the same "
        "number.",
        "{who} meets {friends}, and they divide all {his} {many} equally among themselves.",
        "{who} hands out all {his} {many} evenly to {friends} and {himself}.",
    ),
}
QUESTIONS = (
    "How many {many} does {name} have now?",
    "How many {many} does {name} have in the end?",
    "How many {many} does {name} end up with?",
)


@dataclass(frozen=True)
class Scene:
    """One setting: its thing, its container, and its own templates besides the common ones."""

    one: str
    many: str
    boxes: str
    starts: tuple[str, ...]
    add: tuple[str, ...]
    subtract: tuple[str, ...]
    times: tuple[str, ...]

    def templates(self, kind: str) -> tuple[str, ...]:
        """All templates for an operation of that kind."""
        own = {"add": self.add, "subtract": self.subtract, "times": self.times}
        return (*COMMON[kind], *own.get(kind, ()))


SCENES = (
    Scene(
        "apple",
        "apples",
        "baskets",
        (
            "{who} spends the morning in the orchard and picks {things}.",
            "{who} comes home from the market with {things}.",
        ),
        ("{who} picks {more} from a low branch.", "{who} finds {more} in the grass."),
        ("{who} makes juice from {things}.", "{who} feeds {things} to the horses."),
        ("{who} helps with the harvest and has {times} as many {many} as before.",),
    ),
    Scene(
        "egg",
        "eggs",
        "cartons",
        (
            "{who} keeps hens, and today {he} gathers {things}.",
            "{who} opens the farm shop with {things} on the shelf.",
        ),
        ("the hens lay {more} for {him}.", "{who} gathers {more} in the barn."),
        ("{who} sells {things} to {friend}.", "{who} cooks {things} for {his} guests."),
        ("{who} buys new hens and soon has {times} as many {many} as before.",),
    ),
    Scene(
        "sticker",
        "stickers",
        "envelopes",
        ("{who} starts an album with {things}.", "{who} collects stickers and owns {things}."),
        ("{who} buys {more} at the kiosk.", "{who} wins {more} in a game."),
        ("{who} puts {things} on a letter and mails it.", "{who} loses {things} on the bus."),
        ("{who} trades well and now holds {times} as many {many} as before.",),
    ),
    Scene(
        "shell",
        "shells",
        "jars",
        (
            "{who} walks along the beach and collects {things}.",
            "{who} has a bucket with {things} in it.",
        ),
        ("{who} pulls {more} out of a rock pool.", "{who} digs {more} out of the sand."),
        ("{who} drops {things} into the sea.", "{who} uses up {things} for a necklace."),
        ("a day at the bay leaves {him} with {times} as many {many} as before.",),
    ),
    Scene(
        "marble",
        "marbles",
        "bags",
        ("{who} goes to the playground with {things}.", "{who} has {things} in a pouch."),
        ("{who} wins {more} from {friend}.", "{who} finds {more} under the sofa."),
        ("{who} loses {things} to {friend}.", "{who} drops {things} down a drain."),
        ("{who} plays all day and goes home with {times} as many {many} as before.",),
    ),
    Scene(
        "dollar",
        "dollars",
        "envelopes",
        ("{who} is saving up and has {things}.", "{who} gets {things} for {his} birthday."),
        ("{who} earns {more} by mowing a lawn.", "{who} makes {more} at a yard sale."),
        ("{who} spends {things} on a present.", "{who} pays {things} for a pair of shoes."),
        ("{who} takes a summer job and ends it with {times} as many {many} as before.",),
    ),
    Scene(
        "cookie",
        "cookies",
        "tins",
        ("{who} bakes {things} for the school fair.", "{who} takes {things} out of the oven."),
        ("{who} bakes {more}.", "{who} buys {more} at the bakery."),
        ("{who} eats {things} with some tea.", "{who} hands {things} to hungry neighbours."),
        ("{who} bakes all night and has {times} as many {many} as before.",),
    ),
    Scene(
        "pencil",
        "pencils",
        "cases",
        ("{who} sets up an art room with {things}.", "{who} has {things} in a drawer."),
        ("{who} orders {more} from a shop.", "{who} finds {more} in the attic."),
        (
            "{who} throws out {things} that cannot be sharpened.",
            "{who} lends {things} to {friend}.",
        ),
        ("a large delivery leaves {him} with {times} as many {many} as before.",),
    ),
    Scene(
        "seedling",
        "seedlings",
        "trays",
        (
            "{who} works in a nursery and looks after {things}.",
            "{who} buys {things} for a new garden.",
        ),
        ("{who} raises {more} in the greenhouse.", "{who} buys {more} at a fair."),
        ("{who} plants {things} in the park.", "{who} loses {things} to the frost."),
        ("a warm spring leaves {him} with {times} as many {many} as before.",),
    ),
    Scene(
        "bead",
        "beads",
        "boxes",
        ("{who} makes jewellery and has {things}.", "{who} opens a craft kit with {things}."),
        ("{who} orders {more} from a craft shop.", "{who} cuts {more} out of wood."),
        (
            "{who} strings {things} on a bracelet.",
            "{who} spills {things} that cannot be found again.",
        ),
        ("{who} carves for days and has {times} as many {many} as before.",),
    ),
)
