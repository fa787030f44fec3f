"""A name for an experiment that has none."""

from __future__ import annotations

import random

HOW = """able airy amber ample azure bold brave brief bright brisk calm clear clever cosy crisp daring deep
eager early fair fast firm fleet fond fresh gentle glad golden grand green handy happy hardy keen
kind late light lively loyal lucky mellow merry mild neat noble patient plain polite proud quick
quiet rapid ready rosy round royal sharp silent silver simple sleek smart smooth snug solid spry
steady still sturdy sunny sweet swift tall tidy true vast vivid warm wise witty young"""
WHAT = """acorn alder anchor aspen badger bay beacon bear birch bison breeze bridge brook canyon cedar cliff
cloud comet coral crane creek delta dune eagle ember falcon fern finch fjord forest fox garden
glacier grove harbor hawk heron hill island ivy juniper kestrel lagoon lake lark lynx maple marsh
meadow moon moss oak ocean orchid osprey otter owl pebble pine planet pond prairie quartz rain raven
reef ridge river robin sage shore sparrow spring spruce star stone stream summit swan thistle tide
trail tulip valley wave willow wind wolf wren"""


def random_name(source: random.Random | None = None) -> str:
    """Three words that nobody chose.

    Example::

        random_name()  # "Experiment (calm silver heron)"
    """
    source = source or random.SystemRandom()  # training's own random streams are left alone
    first, second = source.sample(HOW.split(), 2)
    return f"Experiment ({first} {second} {source.choice(WHAT.split())})"
