// Writes records of __transaction_state as Apache Kafka's own classes do. A line of input says where an id stands:
// `id layout producer previous next epoch timeout state start update client topic:partition…`; the answer is the key and
// the value. A line of one word is a value that another wrote; the answer is what Kafka makes of it and writes again.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.transaction.TransactionLog;
import org.apache.kafka.coordinator.transaction.TransactionState;
import org.apache.kafka.coordinator.transaction.TxnTransitMetadata;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;
import org.apache.kafka.server.common.TransactionVersion;

public class TransactionLogWriter {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split(" ");
            System.out.println(fields.length == 1 ? writtenAgain(fields[0]) : written(fields));
        }
    }

    private static String written(String[] fields) {
        HashSet<TopicPartition> partitions = new HashSet<>();
        for (int at = 11; at < fields.length; at++) {
            String[] names = fields[at].split(":");
            partitions.add(new TopicPartition(names[0], Integer.parseInt(names[1])));
        }
        TxnTransitMetadata metadata = new TxnTransitMetadata(
            Long.parseLong(fields[2]), Long.parseLong(fields[3]), Long.parseLong(fields[4]),
            Short.parseShort(fields[5]), (short) -1, Integer.parseInt(fields[6]),
            TransactionState.valueOf(fields[7]), partitions, Long.parseLong(fields[8]), Long.parseLong(fields[9]),
            TransactionVersion.fromFeatureLevel(Short.parseShort(fields[10])));
        TransactionVersion layout = TransactionVersion.fromFeatureLevel(Short.parseShort(fields[1]));
        HexFormat hex = HexFormat.of();
        return hex.formatHex(TransactionLog.keyToBytes(fields[0])) + " "
            + hex.formatHex(TransactionLog.valueToBytes(metadata, layout));
    }

    private static String writtenAgain(String value) {
        ByteBuffer raw = ByteBuffer.wrap(HexFormat.of().parseHex(value));
        short version = raw.getShort();
        TransactionLogValue read = new TransactionLogValue(new ByteBufferAccessor(raw), version);
        return HexFormat.of().formatHex(MessageUtil.toVersionPrefixedBytes(version, read)) + " " + raw.remaining();
    }
}
