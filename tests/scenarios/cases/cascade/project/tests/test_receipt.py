import unittest

from shop.receipt import receipt


class TestReceipt(unittest.TestCase):
    def test_it_tells_the_total(self):
        """With its own name before it."""
        self.assertEqual(receipt([100, 50]), "receipt: 150")
