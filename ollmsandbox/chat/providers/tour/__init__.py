# SPDX-License-Identifier: GPL-3.0-or-later
from .... import N_

# The name of the scripted model.
NAME = N_("Tour (scripted, no AI)")
