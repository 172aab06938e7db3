"""All rooms, in the order of the table."""

from tests.mistakes.mistake import Room
from tests.mistakes.rooms import orders, values
from tests.mistakes.rooms.between import BETWEEN
from tests.mistakes.rooms.doors import DOORS
from tests.mistakes.rooms.files import FILES
from tests.mistakes.rooms.stores import STORES
from tests.mistakes.rooms.tools import TOOLS

MORE = (values, orders)
"""Modules that only add to rooms."""

ROOMS: tuple[Room, ...] = (FILES, BETWEEN, DOORS, STORES, TOOLS)
