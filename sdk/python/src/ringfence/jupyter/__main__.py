"""`python -m ringfence.jupyter install`."""

from . import main

main()
