"""python -m trunkline.cli"""

from trunkline.cli import main

main()
