"""How the calls of an application become traces, without the application noticing.

``membrane`` is all that stands between the host and a fault of ours. ``requests`` and ``responses`` read what was sent
and what came back, ``chunks`` puts streamed pieces together, ``streams`` and ``recorder`` follow a call to its end, and
``writer`` is the one thread per process that stores.
"""
