import unittest

from till.total import total


class TotalTest(unittest.TestCase):
    def test_tax_is_added(self):
        self.assertEqual(total([1000, 250]), 1488)


if __name__ == "__main__":
    unittest.main()
