"""Finds the package `rmq_ha` for rmq-ha-client.

rmq-ha-client keeps its files in `rmq_ha_client/rmq_ha`, so rmq-ha and rmq-ha-client share no file.
Python prefers the directory `rmq_ha` of rmq-ha to this module: where both are installed, rmq-ha
serves `import rmq_ha`. An rmq-ha in another directory, for example an editable one, goes first.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from os.path import abspath, dirname, join

_here = dirname(abspath(__file__))
_elsewhere = [entry for entry in sys.path if abspath(entry) != _here]
_spec = PathFinder.find_spec(__name__, [*_elsewhere, join(_here, "rmq_ha_client")])
if _spec is None or _spec.loader is None:
    raise ModuleNotFoundError(
        f"the files of rmq-ha-client are missing in {join(_here, 'rmq_ha_client')}: "
        "install rmq-ha-client again",
        name=__name__,
    )
_package = module_from_spec(_spec)
sys.modules[__name__] = _package
_spec.loader.exec_module(_package)
