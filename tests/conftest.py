"""What holds for every test."""

import signal

# Started in the background (a CI runner, `&`), this process inherits an ignored Ctrl-C and would hand it on to the
# programs under test, which must be seen to end on one.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
