"""What a test session leaves behind: its record, logs, artifacts, figures and reports.

Owns: the record of a session, the directory that logs and artifacts are kept in, results and their
    series, the comparison with earlier runs, JUnit XML and the HTML page.
Never: reads or writes the API, decides a verdict, or runs anything.
Flow: TestSession document, logs and artifacts → ``SessionRecord`` → directory, series → reports.
Concurrency: none; what blocks on the disk is called through an ``Offload``.
Start reading at: ``session_record``, then ``evidence_directory``.
"""
