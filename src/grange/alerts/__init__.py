"""Alerts for operators: reported at least once under a stable key, which receivers deduplicate by.

Owns: what an alert is, the active alerts of a process, and the sinks that take them to operators.
Never: decides what is alarming, reads the API, or coordinates with other processes. Each process
    reports the alerts of the objects that it owns, whether or not another one has reported them. The
    webhook repeats an alert while it lasts and names the time at which it is over unless it is
    repeated, as Prometheus does with Alertmanager, so the alert of a process that is gone ends, too.
Flow: ``Alerts.fire`` or ``replace`` → changes → ``AlertSink`` → log, metric, webhook.
Concurrency: calls return at once; a sink that delivers over the network runs in its own task.
Start reading at: ``alerts``, then ``targets``.
"""
