"""The models that this program trains, each behind one plug-in: the only place of the application that names one."""
