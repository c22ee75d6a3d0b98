"""The part that runs on Spark. Only these modules import PySpark, so that everything else works
where it is not installed.
"""
