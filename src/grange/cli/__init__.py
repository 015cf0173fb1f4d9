"""The command line: verbs over the API, in kubectl's spelling; they work on any kubeconfig.

Owns: verbs, printers, progress of waits, exit codes.
Never: the store, the server, the environment (``app`` hands in what it read).
Flow: argv → verb → client calls → a table or documents on standard output; progress and warnings on
    standard error.
Concurrency: one verb a process, on a separate event loop.
Start reading at: ``main``, then any file under ``verbs``.
"""
