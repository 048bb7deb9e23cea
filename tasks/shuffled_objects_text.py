"""The words of shuffled_objects: names, things, and sentence templates of each scene.

The wording is our own; only the structure (start, swaps, question, lettered options) follows the
public benchmark. Most words are short, so that each is a single token of a small vocabulary.
"""

from dataclasses import dataclass

NAMES = (
    "Alice",
    "Bob",
    "Claire",
    "Dave",
    "Eve",
    "Fred",
    "Gertrude",
    "Ana",
    "Ben",
    "Cleo",
    "Dan",
    "Ella",
    "Finn",
    "Gus",
    "Hana",
    "Ivan",
    "June",
    "Karl",
    "Lena",
    "Max",
    "Nora",
    "Omar",
    "Pia",
    "Quinn",
    "Rosa",
    "Seth",
    "Tara",
    "Uma",
    "Vera",
    "Will",
    "Yara",
    "Zoe",
)
PARTNERS = (
    "Abel",
    "Bella",
    "Carl",
    "Dora",
    "Emil",
    "Faye",
    "Greta",
    "Hugo",
    "Ines",
    "Jack",
    "Kira",
    "Liam",
    "Mona",
    "Nils",
    "Olga",
    "Paul",
    "Rita",
    "Sven",
    "Tina",
    "Viktor",
)
COLOURS = (
    "red",
    "blue",
    "green",
    "black",
    "white",
    "pink",
    "purple",
    "orange",
    "brown",
    "yellow",
    "grey",
    "gold",
)
ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth")


@dataclass(frozen=True)
class Scene:
    """One setting; `shown` is the template of a thing in an option.

    `intro` may contain `{names}`; `holds` and `swap` are clauses, `question` is the incomplete last
    sentence. All texts are short on purpose: a CPU run takes time per token.
    """

    name: str
    things: tuple[str, ...]
    intro: str
    holds: str
    swap: str
    question: str
    shown: str = "{thing}"


SCENES = (
    Scene(
        "marbles",
        COLOURS,
        "{names} share a bag of marbles.",
        "{name} takes the {thing}",
        "{a} and {b} swap marbles",
        "After all that, {name} holds the",
        "{thing} marble",
    ),
    Scene(
        "parcels",
        COLOURS,
        "A post van brings a few parcels.",
        "{name} has a {thing}",
        "{a} and {b} swap parcels",
        "In the evening, {name} has the",
        "{thing} parcel",
    ),
    Scene(
        "books",
        (
            "Emma",
            "Dracula",
            "Ulysses",
            "Dune",
            "Hamlet",
            "Lolita",
            "Moby Dick",
            "Jane Eyre",
            "Oliver Twist",
            "Little Women",
            "The Tempest",
            "The Odyssey",
            "The Trial",
            "War and Peace",
        ),
        "A reading club meets.",
        "{name} gets {thing}",
        "{a} and {b} swap books",
        "When the club closes, {name} has",
    ),
    Scene(
        "toys",
        (
            "kite",
            "drum",
            "robot",
            "puzzle",
            "train",
            "doll",
            "yoyo",
            "truck",
            "mask",
            "paper boat",
            "toy horse",
            "rubber duck",
            "glass ball",
            "tin car",
        ),
        "Kids play in the yard.",
        "{name} has the {thing}",
        "{a} and {b} trade toys",
        "When they go home, {name} has the",
    ),
    Scene(
        "rides",
        PARTNERS,
        "{names} ride in pairs.",
        "{name} is riding with {thing}",
        "{a} and {b} switch partners",
        "At the last stop, {name} is riding with",
    ),
    Scene(
        "crew",
        (
            "pilot",
            "cook",
            "medic",
            "guard",
            "guide",
            "captain",
            "left rower",
            "right rower",
            "deck hand",
            "net keeper",
            "radio operator",
            "bell ringer",
        ),
        "Friends put on a play about a ship.",
        "{name} is playing {thing}",
        "{a} and {b} trade roles",
        "In the last act, {name} is playing",
    ),
    Scene(
        "lunch",
        (
            "apple",
            "pear",
            "plum",
            "cake",
            "bread",
            "soup",
            "rice",
            "salad",
            "cheese",
            "fig",
            "nut pie",
            "egg roll",
            "corn bread",
            "fish stew",
        ),
        "It is lunch time at school.",
        "{name} has {thing}",
        "{a} and {b} trade lunch",
        "When the bell rings, {name} has",
    ),
    Scene(
        "band",
        (
            "flute",
            "harp",
            "piano",
            "violin",
            "horn",
            "bass",
            "banjo",
            "organ",
            "cello",
            "tuba",
            "snare drum",
            "steel guitar",
        ),
        "A band tries out a new song.",
        "{name} is on {thing}",
        "{a} and {b} switch",
        "For the last song, {name} is on",
    ),
)
