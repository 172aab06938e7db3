"""All rooms, in the order of the table."""

from tests.mistakes.mistake import Room
from tests.mistakes.rooms.between import BETWEEN
from tests.mistakes.rooms.doors import DOORS
from tests.mistakes.rooms.files import FILES
from tests.mistakes.rooms.stores import STORES
from tests.mistakes.rooms.tools import TOOLS

ROOMS: tuple[Room, ...] = (FILES, BETWEEN, DOORS, STORES, TOOLS)
