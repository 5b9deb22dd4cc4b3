"""Types of the public names, which the package itself loads on first use."""

from cimtool.api import ModelSource as ModelSource
from cimtool.api import change_gallery as change_gallery
from cimtool.api import compare as compare
from cimtool.api import compile as compile
from cimtool.api import cost as cost
from cimtool.api import embed as embed
from cimtool.api import encode as encode
from cimtool.api import evaluate as evaluate
from cimtool.api import fine_tune as fine_tune
from cimtool.api import fit as fit
from cimtool.api import load as load
from cimtool.api import program as program
from cimtool.api import program_cam as program_cam
from cimtool.api import search as search
from cimtool.api import simulate as simulate
from cimtool.api import sweep as sweep
from cimtool.api import teacher as teacher
from cimtool.api import train as train
from cimtool.api import train_grid as train_grid
from cimtool.api import tune as tune
from cimtool.api import verify as verify
from cimtool.base.errors import CheckFailed as CheckFailed
from cimtool.base.errors import CimError as CimError

__version__: str
API: tuple[str, ...]
