"""The endpoints controller: the addresses behind every Service.

Owns: the EndpointSlices and the Endpoints object of each Service that has a selector.
Never: those of Services without one, which belong to their authors.
Flow: Service and its pods → ``logic`` → objects that differ are written, on the version that was read.
Concurrency: one Service is worked on once at a time, several side by side; changes of its pods within a
    moment are one reconcile.
Start reading at: ``logic``, then ``controller``.
"""
