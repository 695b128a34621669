import unittest

from shop.invoice import invoice


class TestInvoice(unittest.TestCase):
    def test_it_tells_the_total(self):
        """With its own name before it."""
        self.assertEqual(invoice([100, 50]), "invoice: 150")
