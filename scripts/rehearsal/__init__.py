"""Deployment on paper: updates of synthesised stacks, checked against what CloudFormation refuses.

No account is used. `python -m scripts.rehearsal` rehearses every setting and the upgrade.
"""
