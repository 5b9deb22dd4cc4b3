"""Types of the library's functions, which `api` itself loads on first use."""

from cimtool.bundle.api import Compilation as Compilation
from cimtool.bundle.api import Matcher as Matcher
from cimtool.bundle.api import compile as compile
from cimtool.bundle.api import load as load
from cimtool.bundle.api import prepare as prepare
from cimtool.bundle.api import simulate as simulate
from cimtool.costs.api import cost as cost
from cimtool.experiments.api import evaluate as evaluate
from cimtool.experiments.api import sweep as sweep
from cimtool.experiments.api import train_grid as train_grid
from cimtool.experiments.api import tune as tune
from cimtool.galleries.api import change_gallery as change_gallery
from cimtool.galleries.api import encode as encode
from cimtool.galleries.api import program as program
from cimtool.galleries.api import program_cam as program_cam
from cimtool.galleries.api import search as search
from cimtool.loading.api import ModelSource as ModelSource
from cimtool.loading.api import read_data as read_data
from cimtool.training.api import fine_tune as fine_tune
from cimtool.training.api import fit as fit
from cimtool.training.api import teacher as teacher
from cimtool.training.api import train as train
from cimtool.verification.api import compare as compare
from cimtool.verification.api import verify as verify

NAMES: dict[str, tuple[str, ...]]
