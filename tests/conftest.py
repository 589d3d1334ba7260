"""Set before anything imports Triton: without a GPU its kernels run in the interpreter."""

import os
from pathlib import Path

if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
