"""Strings that tell tokenizers apart: scripts, marks, emoji, blanks, numbers, contractions, specials, random bytes."""

import random
import unicodedata

SCRIPTS = [
    "The quick brown fox jumps over the lazy dog.", "Zażółć gęślą jaźń", "Съешь же ещё этих мягких французских булок",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία", "דג סקרן שט בים", "نص حكيم له سر قاطع", "我能吞下玻璃而不伤身体。",
    "いろはにほへと ちりぬるを", "키스의 고유조건은 입술끼리 만나야 하고", "नमस्ते दुनिया, क्षत्रिय", "সব মানুষ স্বাধীনভাবে",
    "ภาษาไทยไม่มีช่องว่าง", "தமிழ் மொழி", "ქართული ენა", "Հայերեն լեզու", "አማርኛ ቋንቋ", "ខ្មែរ", "မြန်မာ", "ᠮᠣᠩᠭᠣᠯ", "Tiếng Việt",
    "Ærø Ñandú Øresund ßtraße ŉ ǰ İı", "ﬁ ﬂ ﬆ ﷺ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 𝒜", "𠀀𠀁 𪛖", "𐍈𐌰𐌽 𓀀𓂀 𒀀", "ꙮ ⁂ ⸘",
]
SYMBOLS = [
    "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇯🇵", "👍🏽", "❤️", "☕️", "1️⃣", "✅ done", "→←↑↓", "€£¥₿", "½⅓¾", "①②③", "Ⅷⅸ", "٣٤٥", "१२३", "²³¹",
    "e\u0301", "a\u0308\u0323", "q\u0307\u0323", "Å Å", "한 한", "\u1100\u1161\u11a8", "\uac00\u11a7\u11a8", "\u0344", "\u212b", "\ufb1d\u05b4", "\u0958",
]
BLANKS = [
    " ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\t\t ", "\u00a0", "\u2003", "\u3000", "\u180e", "\u200b", "\u2028",
    "\x85", "\x0b", "\x0c", "\x1c", "\ufeff", "    \n    ", "\r\n\r\n", "\n\n\n  \t",
]
CODE = [
    "def f(x):\n    return x**2 + 1  # note\n", "for(int i=0;i<10;++i){a[i]=0x1F;}", "<html><body class=\"a\">&amp;</body></html>",
    '{"a": [1, 2.5e-3, null], "b": "\\n"}', "https://example.com/a?b=c&d=%20", "SELECT * FROM t WHERE a='it''s'", "x=-1;y=--z",
    "C:\\Users\\me", "$HOME/.bashrc", "#!/bin/sh", "```python\nprint('hi')\n```", "|a|b|\n|-|-|", "_____", "-----", "!!!???...",
]
CONTRACTIONS = [
    "it's I'm you're we've I'll he'd don't", "IT'S I'M YOU'RE WE'VE I'LL HE'D DON'T", "it’s", "'s's", "''t", "'S 'T", "'\u017f x'\u017fy",
    "'lL 'Ve", "o'clock", "rock'n'roll", "'K '\u212a",
]
NUMBERS = ["0", "12", "123", "1234", "12345678901234567890", "3.14159", "1,000,000", "1e-9", "2024-01-31", "a1b2c3", "x 1 22 333 4444", "٠١٢٣٤٥"]
CONTROLS = ["\x00", "\x01\x02", "\x04\x06\x13\x14\x16\x1d", "\x7f", "a\x00b", "\x1b[0m", "\u0080\u009f", "\U000e0001", "\uffff", "\U0010ffff"]


def fixed(specials=()):
    """Every item above, alone and in the company of blanks and specials."""
    items = SCRIPTS + SYMBOLS + BLANKS + CODE + CONTRACTIONS + NUMBERS + CONTROLS + list(specials)
    yield ""
    for item in items:
        yield item
        yield " " + item
        yield item + "  "
        yield "a" + item + "1\n"
    for special in specials:
        yield f"{special}{special}"
        yield f" {special} x {special[:-1]} {special[1:]}\n{special}\n"
        yield special.upper() + special + "'s"
    for run in (" ", "a", "\n", "é", "1", "!", "\t", "あ", "ab"):
        for length in (2, 3, 17, 64, 1000):
            yield run * length
            yield "x" + run * length + "y"


def mixed(seed, count, specials=()):
    """Random neighbours from the lists above."""
    random_ = random.Random(seed)
    pools = [SCRIPTS, SYMBOLS, BLANKS, BLANKS, CODE, CONTRACTIONS, NUMBERS, CONTROLS] + ([list(specials)] if specials else [])
    for _ in range(count):
        parts = []
        for _ in range(random_.randint(1, 12)):
            item = random_.choice(random_.choice(pools))
            if random_.random() < 0.5:
                begin = random_.randint(0, len(item))
                item = item[begin:random_.randint(begin, len(item))]
            parts.append(item)
        yield "".join(parts)


def random_code_points(seed, count):
    random_ = random.Random(seed)
    blocks = [(0, 0x80), (0, 0x300), (0x300, 0x370), (0x370, 0x2000), (0x2000, 0x3000), (0x3000, 0xD800), (0xE000, 0x10000),
              (0x10000, 0x20000), (0x20000, 0x110000)]
    for _ in range(count):
        text = []
        for _ in range(random_.randint(1, 40)):
            low, high = random_.choice(blocks)
            text.append(chr(random_.randrange(low, high)))
        yield "".join(text)


def marks(seed, count):
    """What normalization looks at: combining marks, Hangul, composed letters, vowel signs in two parts."""
    random_ = random.Random(seed)
    pool = [c for c in range(0x300, 0x20000) if unicodedata.combining(chr(c))]
    for low, high in ((0xC0, 0x180), (0x1100, 0x1200), (0xAC00, 0xAC40), (0x1E00, 0x2000), (0x9C7, 0x9DF), (0xDC0, 0xDE0),
                      (0x11347, 0x1134F), (0x11930, 0x11939), (0x61, 0x7B)):
        pool += list(range(low, high)) * 2
    for _ in range(count):
        yield "".join(chr(random_.choice(pool)) for _ in range(random_.randint(2, 30)))


def every_code_point():
    """Each one that may be assigned, between letters and between other things; 256 to a string."""
    for begin in [*range(0, 0xD800, 256), *range(0xE000, 0x40000, 256), *range(0xE0000, 0xE1000, 256), 0xF0000, 0x10FF00]:
        characters = [chr(code_point) for code_point in range(begin, begin + 256)]
        yield "a".join(characters)
        yield "'s 1 ".join(characters)


def random_bytes(seed, count):
    random_ = random.Random(seed)
    for _ in range(count):
        data = bytearray(random_.randbytes(random_.randint(1, 60)))
        if random_.random() < 0.5:  # valid text with a few wounds
            data = bytearray("".join(random_.choices(SCRIPTS + SYMBOLS, k=2)).encode())
            for _ in range(random_.randint(1, 5)):
                data[random_.randrange(len(data))] = random_.randrange(256)
        yield bytes(data)
